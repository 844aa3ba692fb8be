"""Moving in: jobs that wait in Celery, RQ or Huey come to a store of ours.

What a message means is read by pure functions (`celery`, `rq`, `huey`), none of which needs the package it is
named for; where messages lie is known to the sources (`celery_source`, `rq_source`, `huey_redis_source`,
`huey_file_source`); and one `Importer` stores each job first and takes it out of its old place afterwards.
"""
