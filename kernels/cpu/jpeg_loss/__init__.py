"""What JPEG loses of RGB pixels: the codec without its lossless part, entropy coding."""
