-- pending_count: how many jobs of a queue may be claimed now, for `max_length`.
select jobs from forebay_counts where queue = :queue and state = 'pending';
