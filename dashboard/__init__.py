"""The Streamlit application over the store. It never sees anything but what was released."""
