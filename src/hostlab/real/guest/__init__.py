"""What runs inside a real host of the lab, beside Linkwright: the channel from outside and the emulated firmware.
"""
