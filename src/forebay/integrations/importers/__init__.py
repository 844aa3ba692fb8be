"""Importers of jobs that wait in Celery, RQ or Huey.

Pure functions read the messages (`celery_message`, `rq_message`, `huey_message`), and need none of these
packages. Sources know where messages are (`celery_source`, `rq_source`, `huey_redis_source`,
`huey_sqlite_source`). One `Importer` stores each job first, and then removes it from its source.
"""
