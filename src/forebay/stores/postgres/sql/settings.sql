-- settings: of all queues, dropped ones too; those that are alike once.
select distinct settings from forebay.queues;
