"""What several commands show to people: text, graphs, bars."""
