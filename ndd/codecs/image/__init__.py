"""Image files: headers, orientation, and decoding through nvimgcodec."""
