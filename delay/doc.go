// Package delay delivers messages after one of RocketMQ's fixed delays (level 1 to 18: 1s to 2h by default).
//
// A message with the property DELAY is stored under the topic SCHEDULE_TOPIC_XXXX, in queue level-1 (Levels.Rewrite);
// its consume queue entry carries the time at which it is due (Levels.TagsCode). Each of these queues is in the order of
// time, so a Scheduler needs no more than to look at the head of each: it sleeps until the first is due, or a message
// comes into a queue that was empty, appends what is due to the log under its real topic and queue, and counts up.
//
// The count per level is the progress, config/delayOffset.json, as Java's broker keeps it. It is never ahead of what
// the log has on disk, so that no message is lost with a power cut; and it holds the place in the log up to which
// deliveries are counted, so that a Scheduler that was killed finds the deliveries behind it and does not repeat them.
//
// What a consumer sees is what RocketMQ shows it: the properties as they were stored, DELAY, REAL_TOPIC and REAL_QID
// among them.
package delay
