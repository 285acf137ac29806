"""The tasks that the workers run: `celery -A tasks worker`."""

import asyncio
import os

import invoices
from celery import Celery, Task
from celery.schedules import crontab

app = Celery("tasks", broker=os.environ["REDIS_URL"])
app.conf.update(
    task_acks_late=True,
    task_reject_on_worker_lost=True,
    task_ignore_result=True,
    worker_prefetch_multiplier=1,
    # Seconds until another worker takes over.
    broker_transport_options={"visibility_timeout": 3600},
    # Every minute.
    beat_schedule={"reconcile": {"task": "tasks.reconcile", "schedule": crontab()}},
)


@app.task(bind=True, max_retries=None)
def execute_intent(self: "Task[[int], None]", intent_id: int) -> None:
    """Send a recorded write."""
    call = invoices.send(intent_id)
    attempt = self.request.retries + 1
    seconds = asyncio.run(invoices.try_call(f"intent {intent_id}", call, attempt))
    if seconds is not None:
        raise self.retry(countdown=seconds)


@app.task
def reconcile() -> None:
    """Ask about unknown writes, and queue what no task will send."""
    for intent_id in asyncio.run(invoices.reconcile()):
        execute_intent.delay(intent_id)
