from hypothesis import settings

# A loaded machine is slow now and then; the properties here are not about time.
settings.register_profile("specs", deadline=None)
settings.load_profile("specs")
