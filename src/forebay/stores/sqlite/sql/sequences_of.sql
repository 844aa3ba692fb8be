-- sequences_of: positions of jobs in their sequences. Index: forebay_sequences_job.
select job_id, name, position from forebay_sequences where job_id in (select value from json_each(:ids)) order by name, position;
