"""Sound: spectra, mel scales, levels."""
