"""What may surround a run: each module is one feature, or something that several share. No feature knows another."""
