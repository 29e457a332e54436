"""What a person sees: text, graphs, bars."""
