"""Grid Engine's accounting to job events, Sonar's envelopes and files."""
