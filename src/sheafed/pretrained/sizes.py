"""The sizes to which inputs of pretrained encoders are brought, unless told otherwise."""

MAX_TOKENS = 64
"""Of a text; the rest of a longer one is cut off."""
RESOLUTION = 128
"""To which an image is resized, in pixels."""
