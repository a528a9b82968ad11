"""MQTT 5 and 3.1.1, both ways: the only package that imports aiomqtt."""
