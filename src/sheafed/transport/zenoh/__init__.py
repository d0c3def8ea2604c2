"""Peers that find each other over TLS: sessions, certificates, relays."""
