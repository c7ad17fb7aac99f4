"""What a gate answers: a sentence, a table, Markdown for a comment, JUnit XML, and JSON."""
