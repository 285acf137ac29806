"""The sandbox's pages: the payment gateway, and the dashboard with its controls."""
