from retinue.durable.trouble import first_line

REFUSED = """connection failed: connection to server at "10.0.0.5", port 5432 failed: FATAL:  password authentication \
failed for user "retinue"
connection to server at "10.0.0.5", port 5432 failed: FATAL:  no pg_hba.conf entry for host "10.0.0.7", no encryption
"""


def test_wrong_password_is_the_reason():
    said = first_line(Exception(REFUSED))
    assert ("password authentication failed for user" in said, "pg_hba" in said) == (True, False)


def test_other_words_are_one_line():
    assert first_line(Exception("no such\n  thing")) == "no such thing"
