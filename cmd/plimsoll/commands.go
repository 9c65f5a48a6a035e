package main

import "time"

const description = `Plimsoll takes jobs into queues, places their tasks on a fleet of machines, runs each as a process in a cgroup, and says
at any time what runs where, what waits, and why.`

// commands is the tree of commands. Flags of the root may stand anywhere on the command line.
type commands struct {
	Server   string        `help:"Address of a gateway: URL, host:port or unix:/path. Of several, separated by commas, the next is tried when one cannot be reached." env:"PLIMSOLL_SERVER" default:"http://127.0.0.1:9080"`
	RetryFor time.Duration `help:"How long to try again while the server is away. A change is made once all the same." env:"PLIMSOLL_RETRY_FOR" default:"2s"`

	TokenFile string `help:"File with the user token of the gateway; PLIMSOLL_TOKEN, PLIMSOLL_TOKEN_FILE. On the machine of the gateway its user needs none." placeholder:"FILE"`

	Submit  submitCmd  `cmd:"" help:"Submit the job of a job file."`
	Run     runCmd     `cmd:"" help:"Run one command as a job, follow its output and exit with its exit code."`
	Job     jobCmd     `cmd:"" help:"List, read, follow and change jobs."`
	Task    taskCmd    `cmd:"" help:"List tasks."`
	Node    nodeCmd    `cmd:"" help:"List nodes, and say whether they take tasks."`
	Queue   queueCmd   `cmd:"" help:"List queues."`
	Events  eventsCmd  `cmd:"" help:"Read the recent events."`
	Explain explainCmd `cmd:"" help:"Say why a task waits, or why it is where it is."`
	Place   placeCmd   `cmd:"" help:"Say where the tasks of a job would go, and how many fit, without submitting it."`
	Defrag  defragCmd  `cmd:"" help:"Plan moves of tasks that would empty nodes or make room; it only plans."`
	Policy  policyCmd  `cmd:"" help:"Read and change the policies by which nodes are kept below their waterlines."`
	QOS     qosCmd     `cmd:"" name:"qos" help:"Show what keeps nodes at their waterlines."`
	Config  configCmd  `cmd:"" help:"Check files, and read and replace the configuration of the queues."`
	Token   tokenCmd   `cmd:"" help:"Print where the token of the server is."`
	Version versionCmd `cmd:"" help:"Print the version."`

	HelpOf     helpCmd       `cmd:"" name:"help" help:"Print the help of a command."`
	Completion completionCmd `cmd:"" help:"Print the completions for a shell."`
	Complete   completeCmd   `cmd:"" name:"__complete" hidden:"" help:"Print what a word can become, for a shell."`

	PrintVersion versionFlag `name:"version" help:"Print the version."`

	roleCommands `embed:""`
}

// Help is the text below the summary of "plimsoll --help".
func (commands) Help() string {
	return example("plimsoll dev --data /tmp/plimsoll", "plimsoll submit examples/wordcount.yaml --wait",
		"plimsoll run -- echo hello") +
		"\n\n" + exitCodesHelp()
}
