// Package executor runs the attempts of a node's tasks as processes, through one supervisor process
// a node.
//
// Supervisor is that process: it parents every task, puts it under its limits, keeps its
// maxRuntime, stops it, reaps it, and records how it ended. It is a process of its own (own
// session, own control group), so that the agent, or all of dev, can die and come back while tasks
// run on. Client is the agent's side: Connect finds the supervisor of a directory or starts one,
// detached; Start, Stop, Watch and Forget speak to it over a unix socket. Exactly one supervisor
// runs for a directory: it holds a lock on supervisor.lock.
//
// Files, all below the agent's directory:
//
//	supervisor.lock, supervisor.json, supervisor.sock, supervisor.log
//	uids.json                          where in the range the next uids are taken from
//	tasks/<task>/work                  the task's own directory, kept over attempts
//	tasks/<task>/<attempt>/lock        held while a supervisor answers for the attempt
//	tasks/<task>/<attempt>/attempt.json  pid, start time and boot id: durable before the program's first instruction
//	tasks/<task>/<attempt>/exit.json   how it ended: complete or not there (rename)
//	tasks/<task>/<attempt>/stdout, stderr
//	tasks/<task>/<attempt>/forgotten   the end was reported; a new supervisor does not look here again
//
// # Start once
//
// An attempt starts only in a directory that this start created. The program is started under
// ptrace and stands still behind exec, before its first instruction, until its control group and
// attempt.json are in place; if the supervisor dies meanwhile the kernel kills it
// (PTRACE_O_EXITKILL). So exec itself has succeeded, and what cannot be executed ends as "never
// started" with the reason, or as "node fault" if the reason lies with this machine. The few
// hundred microseconds between fork and that mark are covered at the next start: a directory
// without attempt.json is lost, and before that is said, whatever runs in its control group or
// carries its environment is killed. Where ptrace is forbidden a small shell takes the program's
// place: it waits for a word on a pipe, which comes when the record is durable, and then becomes
// the program; a program that cannot be executed then ends with exit code 126 or 127, as in a
// shell.
//
// # As whom
//
// A supervisor that is root gives each attempt a uid and a gid of its own, or the user that Users
// permits; any other runs all as itself. The agent sends its Users with each start, because it may
// come back with others than those of the agent that started the supervisor. The directories from
// the agent's down to the task's own can be passed through and not listed, all others are the
// supervisor's alone. The task's own directory has a group that stays with it, and goes to the uid
// of each attempt in turn; tasks that have its files (volumesFrom) get its group, if they are of
// the same owner. So nothing that root does there follows a name that a task can exchange: files
// are changed by descriptor.
//
// Programs start on threads that have given up what they must not have: no_new_privs, no capability
// left in the bounding set, a umask of their own. One more thread, not confined, is for tasks of
// root. Descriptors are marked close-on-exec before each fork, those too that the supervisor was
// started with.
//
// # The end of an attempt
//
// When the main process ends, what is left of its control group (without one: its session, and
// processes that carry its environment or its mark, see limitMark) is killed; then the end is
// published. Exit code 0 is success; SIGKILL after an out-of-memory kill in the group is out of
// memory; what ended after a stop has the result that the stop asked for; maxRuntime is timed out;
// all else has failed, with 128+n for signal n. A stop thaws what is frozen, so that SIGTERM is
// heard and the grace is of use. So does the supervisor when no agent has watched it for a minute:
// an agent freezes tasks for seconds, and one that does not come back would leave them standing
// still.
//
// If the supervisor dies, tasks run on. The next one re-adopts what still runs (pid, start time and
// boot id agree): it can be watched and stopped, and ends as "exit code unknown". What has ended
// meanwhile is "exit code unknown" too; another boot id is lost. One that cannot be taken over now
// shows as starting and is tried again; the others do not wait for it.
//
// # Limits
//
// The quota is cpu and ext-cpu together, the memory limit memory and ext-memory. The weight on a
// busy machine is in proportion to cpu alone: a task that runs on lent processors only has the
// least weight there is, 2 shares, and yields to all others.
//
// Pids bounds the processes of an attempt, TasksMemory what all tasks of the node use together:
// attempts that asked for no memory are ended first, by their oom_score_adj. What an attempt with
// an amount of disk takes is measured every 10 s, by blocks, for all attempts in turn and a quarter
// of the time at most; one that takes more is stopped as "out of disk".
//
// # Logs
//
// Stdout and stderr are files that the program appends to directly, so that it does not depend on a
// reader. The newest LogLimit bytes of each are kept: once a second (faster if one grows fast) the
// supervisor gives the oldest blocks back by punching a hole, which leaves offsets as they are;
// LogData says where bytes are. What is cut is the file that the program was given, which the
// supervisor holds open, whatever the task has made of its name. Between two looks, and while no
// supervisor runs, a file can exceed its limit. On file systems without holes the file is cut to
// nothing when it is over its limit.
//
// # Cost
//
// A running task costs no thread and no goroutine: one goroutine reaps all, on SIGCHLD; an adopted
// one costs a pidfd and a goroutine. Starting costs a fork, one journal commit of the file system,
// and a few writes to control groups. Without root or control groups everything works without
// limits; Capabilities says so and why.
//
// Not done here: what to run and when (internal/agent), reports, reading logs, removing
// directories.
//
// The design is decisions 5 and 6 of the architecture; the recording before exec follows runc's
// create and start.
package executor
