"""One process per agent: peers that may be slow, absent or gone."""
