// Package executor runs the attempts of a node's tasks as processes, through one supervisor process
// per node. internal/agent calls it.
//
//	client, err := executor.Connect(ctx, executor.ClientConfig{Dir: dir, Command: command})
//	start := executor.StartRequest{Task: "web.web.0", Attempt: 1, Spec: spec}
//	status, err := client.Start(ctx, start)
//	err = client.Stop(ctx, executor.StopRequest{Task: "web.web.0", Attempt: 1})
//	err = client.Watch(ctx, func(changed []executor.Status, snapshotEnd bool) error { … })
//
// Supervisor is the parent of every task. It sets limits, enforces maxRuntime, stops and reaps
// tasks, and records how they ended. It is a separate process with its own session and control
// group. So tasks run on while the agent, or all of dev, is restarted.
//
// Client is the agent's side. Connect finds the supervisor of a directory, or starts one, detached.
// Start, Stop, Watch and Forget talk to it over a unix socket. Exactly one supervisor runs for a
// directory: it holds a lock on supervisor.lock.
//
// A task goes by its local name (LocalName), which has the uid of its job. Only its program is told
// the id alone.
//
// The package owns these files, all below the agent's directory:
//
//	supervisor.lock, supervisor.json, supervisor.sock, supervisor.log
//	uids.json                            position of the next uids in their range
//	tasks/<task>/work                    the task's own directory, kept over attempts
//	tasks/<task>/<attempt>/lock          held while a supervisor is responsible for the attempt
//	tasks/<task>/<attempt>/attempt.json  pid, start time and boot id; durable before the run
//	tasks/<task>/<attempt>/exit.json     the end: complete or missing (rename)
//	tasks/<task>/<attempt>/stdout, stderr
//	tasks/<task>/<attempt>/stdout.times, stderr.times  when the logs grew
//	tasks/<task>/<attempt>/forgotten     the end was reported; later supervisors skip the attempt
//
// # Start once
//
// An attempt starts only in a directory that this start created. The program is started under
// ptrace and stops after exec, before its first instruction, until its control group and
// attempt.json are in place. If the supervisor dies meanwhile, the kernel kills the program
// (PTRACE_O_EXITKILL). A program that cannot be executed ends as "never started" with the reason,
// or as "node fault" if the reason lies with this machine.
//
// A supervisor may also die in the few hundred microseconds between fork and this point. Then a
// directory without attempt.json is left, and the next start finds it. It kills all processes in
// the attempt's control group or with its environment, and reports the attempt as lost.
//
// Where ptrace is forbidden, a small shell is started instead. It waits for a line on a pipe, which
// the supervisor writes once attempt.json is durable. Then the shell execs the program. There, a
// program that cannot be executed ends with exit code 126 or 127, as in a shell.
//
// # Users of tasks
//
// A supervisor that is root gives each attempt its own uid and gid, or the user that Users permits.
// Any other supervisor runs all tasks as itself. The agent sends its Users with each start, because
// they may differ from those of the agent that started the supervisor.
//
// The directories from the agent's down to the task's own can be entered but not listed. All others
// are private to the supervisor. The task's own directory has a group that stays with it, and
// belongs to the uid of each attempt in turn. Tasks that share its files (volumesFrom) get its
// group, if they have the same owner. Root changes files by descriptor there, and never follows a
// name that a task can exchange.
//
// Programs start on threads with reduced rights: no_new_privs, an empty bounding set of
// capabilities, an own umask. One more thread, not confined, starts tasks of root. Descriptors are
// marked close-on-exec before each fork, including those inherited by the supervisor.
//
// # The end of an attempt
//
// When the main process ends, the remaining processes of its control group are killed, and then the
// end is published. Without a control group these are the processes of its session, and those with
// its environment or its mark (see limitMark).
//
// Exit code 0 is success. SIGKILL after an out-of-memory kill in the group is out of memory. An end
// after a stop has the result of the stop; maxRuntime is timed out. Any other end has failed, with
// 128+n for signal n.
//
// A stop thaws a frozen attempt, so that it receives SIGTERM and can use its grace. The supervisor
// also thaws attempts when no agent has watched it for a minute: an agent freezes tasks for
// seconds, and may not come back to thaw them.
//
// If the supervisor dies, tasks run on. The next one adopts a running attempt if pid, start time
// and boot id agree. An adopted attempt can be watched and stopped, and ends as "exit code
// unknown". So does an attempt that has ended meanwhile; after a reboot it is lost. An attempt that
// cannot be adopted yet shows as starting and is retried, and delays no other.
//
// # Limits
//
// Ext-cpu and ext-memory are lent resources: amounts that other tasks have asked for and do not
// use. The quota is the sum of cpu and ext-cpu, and the memory limit that of memory and ext-memory.
// The weight on a busy machine is in proportion to cpu alone. A task with only lent processors has
// the least weight, 2 shares, and yields to all others.
//
// Pids bounds the processes of an attempt, TasksMemory the memory of all tasks of the node. By
// their oom_score_adj, attempts that asked for no memory are ended first.
//
// The disk usage of attempts with an amount of disk is measured every 10 s, in blocks. The
// measurement takes a quarter of the time at most. An attempt over its amount is stopped as "out of
// disk".
//
// # Logs
//
// Stdout and stderr are files that the program appends to directly, so that it does not depend on a
// reader. The newest LogLimit bytes of each are kept. Once a second (faster if a log grows fast)
// the supervisor gives the oldest blocks back by punching a hole. Offsets stay the same, and
// LogData finds the remaining bytes. Without support for holes a file over its limit is truncated
// to nothing.
//
// With that check the supervisor also notes how far each log has grown, and between which instants
// (LogSpan). So the times of output are known to the second. The notes of a log take 48 KiB at
// most: when they are full, each two become one, and the times of older output get coarser. Output
// of the last second has the time of the log's last write.
//
// The supervisor holds the program's files open and cuts these, even if the task has changed their
// names. Between two checks, and while no supervisor runs, a file can exceed its limit.
//
// # Cost
//
// A running task costs no thread and no goroutine: one goroutine reaps all, on SIGCHLD. An adopted
// task costs a pidfd and a goroutine. A start costs a fork, one journal commit of the file system,
// and a few writes to control groups. Without root or control groups tasks run without limits;
// Capabilities gives the reason.
//
// The package does not choose the attempts to run (internal/agent does), and neither reports ends,
// reads logs nor removes directories.
//
// The design is decisions 5 and 6 of the architecture; the recording before exec follows runc's
// create and start.
package executor
