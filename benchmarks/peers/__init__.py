"""Other loaders, one file each, with the settings that their documentation recommends for local data."""
