"""The pages. Each file is a script that Streamlit runs when its page is asked for."""
