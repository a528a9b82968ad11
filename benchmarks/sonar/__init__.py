"""Sonar's payloads, decoded and translated."""
