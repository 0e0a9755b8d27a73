"""MQTT."""
