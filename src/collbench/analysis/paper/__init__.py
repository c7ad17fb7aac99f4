"""What a paper published (`reference`), and a run in the terms of the paper (`cells`, `conclusions`)."""
