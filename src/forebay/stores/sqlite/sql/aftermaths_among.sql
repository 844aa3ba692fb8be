-- aftermaths_among: what the list still has to do about jobs that have completed or are gone, and how far it has come.
select parent, after_child, after_number
from forebay_aftermaths
where parent in (select value from json_each(:parents)) and (aftermath = 'completed' or aftermath = 'deleted');
