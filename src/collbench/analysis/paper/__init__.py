"""What papers published (`reference`), what runs have of it (`cells`), and verdicts on conclusions (`judge`)."""
