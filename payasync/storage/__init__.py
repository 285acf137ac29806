"""SQLite and PostgreSQL for journal and inbox: opening, migrations, durable transactions."""
