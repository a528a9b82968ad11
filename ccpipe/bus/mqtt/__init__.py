"""MQTT 5 and 3.1.1, both ways: the only room that knows aiomqtt."""
