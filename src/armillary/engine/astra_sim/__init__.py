"""The engine that agrees with ASTRA-sim to the tick: its program, its kernels and its links with contention.

**Conventions.** ASTRA-sim's congestion-unaware numbers carry its conventions: every active chunk gets the
whole link, a message across two dimensions pays for the first one only, and one collective per rank is in
flight. They are reproduced, because people compare with published results. Where that program crashes, hangs
or stops in silence, the user gets the right answer or a clear error. Where it accepts something odd in
silence, so does this engine, with a warning.

**One schedule, two evaluators.** A collective algorithm is a `Schedule`: what each member sends, receives and
reduces, to whom, in relative terms. Each step waits for the endpoint (and for a reduction, where the schedule
charges one); when it completes, the next messages are posted; each received message inserts the next step.
Because the schedule also says which block moves and where it is added, a test moves real numbers along every
schedule and checks the sums.

- The phase evaluator uses that without contention the finish ticks of all members follow from their start
  ticks alone. When the last member of a phase has started, the phase is evaluated once, and each member gets
  one event, its end. If all started together, the answer was computed when the program was lowered. If not,
  an algorithm with one message at a time (ring, halving-doubling) is a recurrence over its steps, and any
  other is played through on the members of that one phase.
- The message evaluator moves every message of every collective through an event queue, for every rank. It is
  slower and assumes nothing, which makes it the reference. What couples phases while they run is always moved
  message by message: a shared memory bus, and collectives that come as traces of their own.

**Ties.** One tick is a nanosecond, and no kernel has floating-point time. Durations are truncated where
ASTRA-sim truncates them, each message and each reduction on its own; this is why results can be compared to
the cycle. Integer time makes ties common, and what happens first among equals changes results: two chunks
that become ready at one tick enter a queue in some order. ASTRA-sim runs events of one tick in the order in
which they were registered. A copy of that order would differ between ranks that otherwise do the same, and
nothing could be folded. So an event carries what registration order depends on and what is the same on every
rank of a class. Events are ordered by

1. their tick;
2. the tick at which they were registered: for the end of a phase, when its last step began its last wait;
3. the tick at which the cause of that was sent: the message that inserted the step;
4. a sequence number, given when the phase, node or message started.

Steps that take no time end within one tick; the end of the phase then has the place of the latest of them by
2 and 3. Nodes that become free together are issued in ascending order of their ids, and requests to a shared
memory are served in rank order. The phase evaluator computes 2 and 3 along with the finish tick, so both
evaluators, folded and unfolded, order events alike.

**Doubt.** These four leave ties between chunks of different dimensions. The true order then depends on what
other ranks did, and mostly it has no effect. The kernel notes who changed a queue last. A run is in doubt if
two events of one rank, tick and registration tick meet in a queue and their phases were not begun by all
members in turn at the same ticks; if two completions compete for a slot and messages are among them; or if
two ranks ask a shared memory at once. It is then repeated with ASTRA-sim's own order (`settled`) for every
message of every rank: each tick has a list, first come, first served, and all that one rank does at one tick
has the place of what was registered first for it. Of 5,600 recorded runs without contention, 200 are in
doubt. Above 50 million events the fast result stands, with a warning. With contention (`congestion`) that
order is always used, and nothing is folded; the kernels are a variant of the same source, which hands a
message to its first link where the others compute when it arrives.

**Chunk schedulers.** The order of dimensions comes from ASTRA-sim's own schedulers. At issue every (chunk,
phase) notes its row and its place in the queues; queues that are not first come, first served insert by
scanning what waits. All of this is a variant of the kernel, `scheduled`. The greedy scheduler forgets its
work when rank 0 begins a collective, but whoever begins first chooses for all. So several greedy collectives
run in that program's order of events, rank by rank. A pair of collectives of which the first leaves work over
is lowered when a run asks for it.
"""
