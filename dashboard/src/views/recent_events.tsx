/** The newest lines of the audit log, as they come. */

import { exact, moment } from "../format";
import { lines, now } from "../live";
import { Empty, JobLink, QueueLink } from "../ui";

export function RecentEvents({ most }: { most: number }) {
  if (!lines.value.length) return <Empty>No recent activity.</Empty>;
  return (
    <ul class="recent-events" tabIndex={0} aria-label="Recent activity">
      {lines.value.slice(0, most).map((line) => (
        <li key={line.number}>
          <time dateTime={line.at} title={exact(line.at)}>{moment(line.at, now.value)}</time>
          <span>
            <b>{line.kind}</b> {line.job_id && <JobLink id={line.job_id} />} {line.queue && <QueueLink name={line.queue} />} {line.detail} {line.actor && <span class="muted">by {line.actor}</span>}
          </span>
        </li>
      ))}
    </ul>
  );
}
