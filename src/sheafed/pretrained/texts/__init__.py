"""Text encoders: tokenizers, forward passes, and where their files are."""
