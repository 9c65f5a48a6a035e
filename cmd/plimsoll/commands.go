package main

import "time"

const description = `Plimsoll takes jobs into queues, places their tasks on a fleet of machines, runs each as a process in a cgroup, and says
at any time what runs where, what waits, and why.`

// commands is the tree of commands. Flags of the root may stand anywhere on the command line.
type commands struct {
	Server   string        `help:"Address of a gateway: URL, host:port or unix:/path. Separate several by commas; if one cannot be reached, the next is tried." env:"PLIMSOLL_SERVER" default:"http://127.0.0.1:9080"`
	RetryFor time.Duration `help:"How long to try again while the server is away; the last attempt is at the end of this time. While a gateway answers that it has no leader, it is 10 s at least. A change is still made only once." env:"PLIMSOLL_RETRY_FOR" default:"2s"`

	Consistency string `help:"What a read must show: strict (everything acknowledged before it), eventual (the gateway's copy at once, whatever its age), or at-least:EPOCH.REVISION. Watches are always strict." env:"PLIMSOLL_CONSISTENCY" default:"strict" placeholder:"LEVEL"`

	TokenFile string `help:"File with the user token of the gateway; PLIMSOLL_TOKEN or PLIMSOLL_TOKEN_FILE do as well. The user who runs the gateway needs none on its machine." placeholder:"FILE"`

	Submit   submitCmd   `cmd:"" help:"Submit the job of a job file."`
	Run      runCmd      `cmd:"" help:"Run one command as a job, follow its output and exit with its exit code."`
	Job      jobCmd      `cmd:"" help:"List, read, follow and change jobs."`
	Task     taskCmd     `cmd:"" help:"List tasks."`
	Node     nodeCmd     `cmd:"" help:"List, show and watch nodes, and take them out of use."`
	Queue    queueCmd    `cmd:"" help:"List queues."`
	Events   eventsCmd   `cmd:"" help:"Tell the recent events, and show and change their settings."`
	History  historyCmd  `cmd:"" help:"Tell what became of jobs, tasks, nodes and queues, also long ago."`
	Usage    usageCmd    `cmd:"" help:"Sum up who used how much, and how long tasks waited."`
	At       atCmd       `cmd:"" help:"Show what the cluster looked like at an instant."`
	Explain  explainCmd  `cmd:"" help:"Explain why a task, a job or a queue waits, or why a task runs on its node."`
	Place    placeCmd    `cmd:"" help:"Show where the tasks of a job would be placed, and how many fit, without submitting it."`
	Defrag   defragCmd   `cmd:"" help:"Plan moves of tasks that would empty nodes or make room. Nothing is moved."`
	Simulate simulateCmd `cmd:"" help:"Run the scheduler in virtual time: scenarios, traces and past weeks, without a cluster."`
	Policy   policyCmd   `cmd:"" help:"Read and change the policies that keep nodes below their waterlines."`
	QOS      qosCmd      `cmd:"" name:"qos" help:"Show how the QoS agents keep nodes at their waterlines."`
	Store    storeCmd    `cmd:"" help:"Back the active state up, restore it, and move it to another store."`
	Config   configCmd   `cmd:"" help:"Check files, and read and replace the configuration of the queues."`
	Leader   leaderCmd   `cmd:"" help:"Show which coordinator leads, and move leadership."`
	Bench    benchCmd    `cmd:"" help:"Measure parts of Plimsoll on this machine, in processes of their own."`
	Token    tokenCmd    `cmd:"" help:"Print the path of the file with the server's token."`
	Version  versionCmd  `cmd:"" help:"Print the version."`

	HelpOf     helpCmd       `cmd:"" name:"help" help:"Print the help of a command."`
	Completion completionCmd `cmd:"" help:"Print the completion script of a shell."`
	Complete   completeCmd   `cmd:"" name:"__complete" hidden:"" help:"Print the completions of a word, for a shell."`

	PrintVersion versionFlag `name:"version" help:"Print the version."`

	roleCommands `embed:""`
}

// Help is the text below the summary of "plimsoll --help".
func (commands) Help() string {
	return example("plimsoll dev --data /tmp/plimsoll", "plimsoll submit examples/wordcount.yaml --wait",
		"plimsoll run -- echo hello") +
		"\n\n" + exitCodesHelp()
}
