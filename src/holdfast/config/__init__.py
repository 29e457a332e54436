"""The settings: keys, where each value comes from, and changing them."""
