"""The types of Sonar's specification, names exactly as it spells them."""
