"""Image encoders: their trunks, and where their files are."""
