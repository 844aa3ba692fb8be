-- count_of: counter of one queue and state.
select jobs from forebay_queue_counts where queue = :queue and state = :state;
