package plimsoll

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Bounds on one job. A larger one is refused with an error that names the bound.
const (
	MaxGroups       = 100
	MaxTasksPerJob  = 1_000_000
	MaxCommandBytes = 128 << 10
	MaxEnvBytes     = 128 << 10
	MaxLabels       = 64
	MaxLabelKey     = 128  // bytes
	MaxLabelValue   = 1024 // bytes
	MaxToken        = 128  // bytes
	MaxPath         = 4096 // bytes
	MaxIndexes      = 100_000
	MaxOwnerGroups  = 64
	MaxCompleting   = 7 * 24 * time.Hour

	maxOwner = 128 // bytes of the name of a user, or of a group of users
)

// JobState is a state of the event design's application state machine.
type JobState uint8

// The job states (event design, "Change details", APP_*).
const (
	JobNew        JobState = iota + 1 // submitted, its tasks are being created
	JobAccepted                       // every task waits to be placed
	JobStarting                       // at least one task is bound to a node
	JobRunning                        // at least one task has started
	JobCompleting                     // every task has ended successfully; it waits JobSpec.Completing for more
	JobCompleted                      // ended successfully
	JobRejected                       // refused
	JobFailing                        // killed or failed; tasks are being stopped
	JobFailed                         // ended; a task failed for good or the job was killed
	JobResuming                       // a gang gave back its resources and starts again
	JobExpired                        // ended so long ago that its records are being removed

	numJobStates
)

// NumJobStates is one more than the highest state, for tables.
const NumJobStates = int(numJobStates)

var jobStateNames = [numJobStates]string{
	"", "New", "Accepted", "Starting", "Running", "Completing", "Completed", "Rejected", "Failing", "Failed",
	"Resuming", "Expired",
}

// Known reports whether this version has the state.
func (s JobState) Known() bool { return s >= JobNew && s < numJobStates }

// String returns the state's name, such as "Running".
func (s JobState) String() string { return wordOf(jobStateNames[:], s) }

// ParseJobState is the inverse of String; an unknown name is zero.
func ParseJobState(s string) JobState { return JobState(indexOf(jobStateNames[:], s)) }

// Ended reports whether no task of the job will run again.
func (s JobState) Ended() bool {
	return s == JobCompleted || s == JobRejected || s == JobFailed || s == JobExpired
}

// AlreadyEnded returns the error of a change of a job that ended at an instant in Unix nanoseconds.
func AlreadyEnded(id string, state JobState, finished int64) *Error {
	when := time.Unix(0, finished).UTC().Format(time.RFC3339)
	return Errorf(CodeConflict, "job %q has already ended (%s at %s)", id, state, when)
}

// JobSpec is the request of a user to run a job. Its fields are those of the job file.
type JobSpec struct {
	ID    string // the job's id, chosen by the user; unique among the jobs that are still known
	Owner string // the user who submits it
	// OwnerGroups are the groups of users that the owner is in. Limits and access lists of queues
	// use them.
	OwnerGroups []string
	// Queue is the path of a queue. A submitted job may leave it out, or give it without "root.".
	// The placement rules of the queues then say which it is.
	Queue  string
	Tags   map[string]string // placement rules may choose the queue by them
	Labels map[string]string // free key=value pairs, for selection
	Groups []GroupSpec
	Token  string // idempotency token: a repeated submit with it gets the first answer; may be empty
	// AgainOf is the uid of the job that this one does again; empty: none.
	AgainOf string
	// Completing is how long the job stays open for more tasks after the last one has ended well.
	// 0: not at all.
	Completing time.Duration
}

// GroupSpec is the specification that the tasks of a group share. JobSpec.Validate checks it.
type GroupSpec struct {
	Name    string
	Count   int32    // number of tasks; in a submitted job, 0 means DefaultCount or the length of Indexes
	Command []string // the program and its arguments; no shell is involved
	Env     map[string]string
	// WorkDir is the working directory. Empty means the task's own directory; a relative path is
	// created below that.
	WorkDir    string
	User       string // user name or uid to run as; empty: the agent's
	UserGroup  string // group name or gid to run as; empty: the user's own
	Resources  Resources
	Retry      RetryPolicy
	MaxRuntime time.Duration // longest run of one attempt; 0: no limit
	KillGrace  time.Duration // time between SIGTERM and SIGKILL; 0: DefaultKillGrace
	LogLimit   int64         // bytes kept of each of stdout and stderr; 0: DefaultLogLimit
	// Outputs are paths and patterns below the task's own directory: files that can be fetched once
	// the task has ended. See ValidateOutputs.
	Outputs []string

	Class    Class // how much the tasks are worth to their node; see Worth
	Priority int32 // tasks with a higher one are placed first
	// NodePriority is the order within the class on a node: tasks with a higher one lose last.
	// nil: as Priority.
	NodePriority *int32

	Constraints Constraints
	Preferences Preferences

	// Indexes are the numbers of the pieces of work that the tasks do, in rising order: the task
	// with index i does piece Indexes[i]. If the list is empty, it does piece i.
	Indexes []int32
}

// Piece returns the number of the piece of work that a task does. Its program gets it as
// PLIMSOLL_TASK_INDEX.
func (g *GroupSpec) Piece(index int32) int32 {
	if index >= 0 && int(index) < len(g.Indexes) {
		return g.Indexes[index]
	}
	return index
}

// Worth returns Class or, if it is unset, the default that follows from the resources.
func (g *GroupSpec) Worth() Class {
	switch {
	case g.Class != ClassUnset:
		return g.Class
	case g.Resources[ExtCPU] > 0 || g.Resources[ExtMemory] > 0:
		return ClassBestEffort
	}
	return ClassBurstable
}

// PriorityOnNode returns the order of the tasks within their class on a node: NodePriority or, if
// it is unset, Priority.
func (g *GroupSpec) PriorityOnNode() int32 {
	if g.NodePriority != nil {
		return *g.NodePriority
	}
	return g.Priority
}

// Defaults for fields of a group that are zero.
const (
	DefaultCount     = int32(1)
	DefaultKillGrace = 10 * time.Second
	DefaultLogLimit  = int64(64 << 20)
)

// RetryKind is the rule for the wait before a failed task is tried again. (Titus: Immediate,
// Delayed, ExponentialBackOff.)
type RetryKind uint8

// The kinds of retry.
const (
	RetryNone RetryKind = iota
	RetryImmediate
	RetryDelayed
	RetryBackoff

	numRetryKinds
)

var retryKindNames = [numRetryKinds]string{"none", "immediate", "delayed", "backoff"}

// Known reports whether this version has the kind.
func (k RetryKind) Known() bool { return k < numRetryKinds }

// String returns the kind's name as in the job file.
func (k RetryKind) String() string { return wordOf(retryKindNames[:], k) }

// ParseRetryKind reads a kind's name; ok is false for an unknown one.
func ParseRetryKind(s string) (kind RetryKind, ok bool) {
	i := slices.Index(retryKindNames[:], s)
	return RetryKind(max(i, 0)), i >= 0
}

// RetryPolicy says how often and when a failed task is tried again. Losses that are not the task's
// own fault, such as a lost node or a drain, are always tried again and are not counted.
type RetryPolicy struct {
	Kind         RetryKind
	Limit        int32         // failures that are followed by another attempt
	InitialDelay time.Duration // delayed and backoff: first delay; 0: one second
	MaxDelay     time.Duration // backoff: longest delay; 0: five minutes
}

// Delay returns the wait before the attempt that follows the n-th failure, n from 1.
func (p RetryPolicy) Delay(n int32) time.Duration {
	initial := p.InitialDelay
	if initial <= 0 {
		initial = time.Second
	}
	switch p.Kind {
	case RetryDelayed:
		return initial
	case RetryBackoff:
		longest := p.MaxDelay
		if longest <= 0 {
			longest = 5 * time.Minute
		}
		return Backoff{First: initial, Longest: longest}.Delay(int(n))
	}
	return 0
}

// Job is a job and its progress.
type Job struct {
	Spec   JobSpec
	Status JobStatus
}

// JobStatus is the progress of a job. Times are Unix nanoseconds; 0 means that it has not
// happened.
type JobStatus struct {
	ID        string
	Owner     string
	Queue     string
	State     JobState
	Reason    string // why the job ended or was killed, as a sentence; may be empty
	Killed    bool   // a kill was requested
	Submitted int64
	Started   int64 // start of the first task
	Finished  int64
	Groups    []GroupStatus
	Revision  uint64
	UID       UID       // names this lifetime of the id
	History   []JobStep // the last changes of the state, oldest first: at most MaxSteps
	// Deleted says that the job is about to disappear from the active store and the archive.
	Deleted bool
	// UserLimits says that limits of users hold for the owner, and LimitGroup names the group of
	// users whose limits hold for the job: "*" is the wildcard's. They are as the events say, and
	// zero for a job that has ended.
	UserLimits bool
	LimitGroup string
}

// Result returns how a job ended, in the words of tasks. A killed job is in the state JobFailed,
// but has the result ResultKilled. The result is ResultNone before the end, and for an expired
// job.
func (s *JobStatus) Result() TaskResult {
	switch {
	case s.State == JobCompleted:
		return ResultSucceeded
	case s.State == JobFailed && s.Killed:
		return ResultKilled
	case s.State == JobFailed || s.State == JobRejected:
		return ResultFailed
	}
	return ResultNone
}

// GroupStatus counts the tasks of a group and gives the cause for which some of them wait.
type GroupStatus struct {
	Name   string
	Count  int32 // number of tasks wanted
	Counts TaskCounts
	Wait   WaitCause
}

// TaskCounts counts tasks by state, and finished tasks by result.
type TaskCounts struct {
	Pending, Bound, Starting, Running, Stopping, Succeeded, Failed int32
}

// Total returns the sum of the counts.
func (c TaskCounts) Total() int32 {
	return c.Pending + c.Bound + c.Starting + c.Running + c.Stopping + c.Succeeded + c.Failed
}

// OnNodes returns how many of the tasks hold resources of nodes.
func (c TaskCounts) OnNodes() int32 { return c.Bound + c.Starting + c.Running + c.Stopping }

// Plus returns the sum of two counts.
func (c TaskCounts) Plus(o TaskCounts) TaskCounts {
	return TaskCounts{
		c.Pending + o.Pending, c.Bound + o.Bound, c.Starting + o.Starting, c.Running + o.Running,
		c.Stopping + o.Stopping,
		c.Succeeded + o.Succeeded, c.Failed + o.Failed,
	}
}

// WaitCode is the kind of cause for which a group waits.
type WaitCode uint8

// The wait codes.
const (
	WaitNone          WaitCode = iota
	WaitTurn                   // the scheduler has not reached it yet
	WaitQueueMax               // its queue, or a queue above, is at its maximum
	WaitNoNode                 // no node fits now
	WaitNoNodes                // no node takes tasks at present
	WaitTooLarge               // no node would fit even if it were empty
	WaitRetry                  // its failed tasks wait for their next attempt
	WaitNotEligible            // no node is eligible, full or empty: its constraints leave none
	WaitNotUnderstood          // an older version understood its constraints; this version does not
	WaitNoResource             // no node has one of the resources that it requests
	WaitUserMax                // its owner is at a limit of its queue, or of a queue above
	WaitGroupMax               // the group of users that its owner is in is at such a limit
	WaitOrder                  // a job that goes first in its queue does not fit, and holds it back

	numWaitCodes
)

var waitCodeNames = [numWaitCodes]string{
	"", "turn", "queue_max", "no_node", "no_nodes", "too_large", "retry", "not_eligible", "not_understood",
	"no_resource", "user_max", "group_max", "order",
}

// Known reports whether this version has the code.
func (c WaitCode) Known() bool { return c < numWaitCodes }

// String returns the code's word, such as "queue_max"; empty for WaitNone.
func (c WaitCode) String() string { return wordOf(waitCodeNames[:], c) }

// TaskID returns the id of a task: job.group.index. Group names hold no dot, so the id can be
// split from the right.
func TaskID(job, group string, index int32) string { return fmt.Sprintf("%s.%s.%d", job, group, index) }

// Validate returns an error about the first wrong field, which it names as in the job file. The
// error also says how to correct the field.
func (s *JobSpec) Validate() error {
	if err := ValidateID("job", s.ID); err != nil {
		return err
	}
	if len(s.Owner) > maxOwner || strings.ContainsAny(s.Owner, "\n\x00") {
		return Invalid("owner", "is longer than 128 characters or holds a line break")
	}
	if err := s.validateAsked(); err != nil {
		return err
	}
	if err := validatePairs("labels", s.Labels); err != nil {
		return err
	}
	if err := ValidateToken(s.Token); err != nil {
		return err
	}
	if s.AgainOf != "" {
		if _, err := ParseUID(s.AgainOf); err != nil {
			return Invalid("againOf", "%q is not the uid of a job; leave it out", s.AgainOf)
		}
	}
	return s.validateGroups()
}

// validateAsked checks the fields by which the job gets its queue, and how long it stays open.
func (s *JobSpec) validateAsked() error {
	if s.Queue != "" {
		path := s.Queue
		if !strings.EqualFold(path, RootQueue) && !strings.HasPrefix(strings.ToLower(path), RootQueue+".") {
			path = RootQueue + "." + path
		}
		if err := ValidateQueuePath("queue", strings.ToLower(path)); err != nil {
			return err
		}
	}
	if len(s.OwnerGroups) > MaxOwnerGroups {
		return Invalid("ownerGroups", "has %d entries; at most %d are possible", len(s.OwnerGroups), MaxOwnerGroups)
	}
	for i, group := range s.OwnerGroups {
		if group == "" || len(group) > maxOwner || strings.ContainsAny(group, "\n\x00") {
			return Invalid(
				fmt.Sprintf("ownerGroups[%d]", i), "has 1 to %d bytes and no line break; this is %q", maxOwner, group,
			)
		}
	}
	if s.Completing < 0 || s.Completing > MaxCompleting {
		return Invalid("completing", "is %s; give a duration from 0s to %s", s.Completing, MaxCompleting)
	}
	return validatePairs("tags", s.Tags)
}

func (s *JobSpec) validateGroups() error {
	if len(s.Groups) == 0 {
		return Invalid("groups", "is empty; give at least one group with a command")
	}
	if len(s.Groups) > MaxGroups {
		return Invalid("groups", "has %d groups; at most %d are possible", len(s.Groups), MaxGroups)
	}
	total, amounts := int64(0), Resources{}
	for i := range s.Groups {
		g := &s.Groups[i]
		field := fmt.Sprintf("groups[%d]", i)
		if err := g.validate(field); err != nil {
			return err
		}
		for j := range i {
			if s.Groups[j].Name == g.Name {
				return Invalid(
					field+".name", "%q is already the name of groups[%d]; give each group its own name", g.Name, j,
				)
			}
		}
		total += int64(g.Count)
		for _, name := range g.Resources.Names() {
			if g.Count > 0 && g.Resources[name] > (MaxJobAmount-amounts[name])/int64(g.Count) {
				return Invalid(field+".resources."+name, "%d tasks of %s are more than one job may ask for, %s; ask for less or make more jobs",
					g.Count, FormatQuantity(name, g.Resources[name]), FormatQuantity(name, MaxJobAmount))
			}
			amounts[name] += int64(g.Count) * g.Resources[name]
		}
	}
	if total > MaxTasksPerJob {
		return Invalid("groups", "add up to %d tasks; at most %d are possible in one job", total, MaxTasksPerJob)
	}
	return nil
}

func (g *GroupSpec) validate(field string) error {
	if err := validateGroupName(field+".name", g.Name); err != nil {
		return err
	}
	if g.Count < 0 || g.Count > MaxTasksPerJob {
		return Invalid(field+".count", "is %d; give a number from 0 to %d", g.Count, MaxTasksPerJob)
	}
	if len(g.Command) == 0 || g.Command[0] == "" {
		return Invalid(
			field+".command", `is empty; give the program and its arguments, such as ["sh", "-c", "echo hello"]`,
		)
	}
	if err := g.validateIndexes(field); err != nil {
		return err
	}
	if err := g.validateText(field); err != nil {
		return err
	}
	if err := g.Resources.Validate(field + ".resources"); err != nil {
		return err
	}
	if err := g.validateWorth(field); err != nil {
		return err
	}
	if !g.Retry.Kind.Known() {
		return Invalid(field+".retry.policy", "is not known; use %s", oneOf(retryKindNames[:]))
	}
	if g.Retry.Limit < 0 {
		return Invalid(field+".retry.limit", "is negative; give zero or more")
	}
	for _, d := range []struct {
		name  string
		value time.Duration
	}{
		{".maxRuntime", g.MaxRuntime},
		{".killGrace", g.KillGrace},
		{".retry.initialDelay", g.Retry.InitialDelay},
		{".retry.maxDelay", g.Retry.MaxDelay},
	} {
		if d.value < 0 {
			return Invalid(field+d.name, "is negative; give a duration such as 10m")
		}
	}
	if g.LogLimit < 0 {
		return Invalid(field+".logLimit", "is negative; give an amount of bytes such as 64Mi")
	}
	if g.LogLimit > MaxAmount {
		return Invalid(field+".logLimit", "is larger than %s; leave it out for %s",
			FormatQuantity(Memory, MaxAmount), FormatQuantity(Memory, DefaultLogLimit))
	}
	if err := ValidateOutputs(field+".outputs", g.Outputs); err != nil {
		return err
	}
	if err := g.Constraints.validate(field + ".constraints"); err != nil {
		return err
	}
	return g.Preferences.validate(field + ".preferences")
}

func (g *GroupSpec) validateIndexes(field string) error {
	n := len(g.Indexes)
	switch {
	case n == 0:
		return nil
	case n > MaxIndexes:
		return Invalid(field+".indexes", "has %d entries; at most %d are possible", n, MaxIndexes)
	case int(g.Count) != n:
		return Invalid(field+".count", "is %d, and indexes has %d entries; make them equal, or leave count out",
			g.Count, n)
	}
	for i, index := range g.Indexes {
		if index < 0 || index >= MaxTasksPerJob {
			return Invalid(fmt.Sprintf("%s.indexes[%d]", field, i), "is %d; give a number from 0 to %d", index,
				MaxTasksPerJob-1)
		}
		if i > 0 && index <= g.Indexes[i-1] {
			return Invalid(fmt.Sprintf("%s.indexes[%d]", field, i),
				"is %d, behind %d; give each number once, in rising order", index, g.Indexes[i-1])
		}
	}
	return nil
}

func (g *GroupSpec) validateWorth(field string) error {
	if !g.Class.Known() {
		return Invalid(field+".class", "is not known; use %s", oneOf(classNames[ClassBestEffort:]))
	}
	for _, name := range g.Resources.Names() {
		if Extended(name) && g.Worth() != ClassBestEffort {
			return Invalid(
				field+".resources."+name,
				"is only for tasks of class best-effort, and this group's is %s: what is lent is taken back at any time; leave it out, or the class",
				g.Class,
			)
		}
	}
	return nil
}

func (g *GroupSpec) validateText(field string) error {
	for _, text := range []struct{ name, value string }{
		{".workDir", g.WorkDir}, {".user", g.User}, {".userGroup", g.UserGroup},
	} {
		if len(text.value) > MaxPath || strings.IndexByte(text.value, 0) >= 0 {
			return Invalid(field+text.name, "is longer than %d bytes or holds a zero byte", MaxPath)
		}
	}
	size := 0
	for _, arg := range g.Command {
		if strings.IndexByte(arg, 0) >= 0 {
			return Invalid(field+".command", "holds a zero byte")
		}
		size += len(arg) + 1
	}
	if size > MaxCommandBytes {
		return Invalid(field+".command", "is %d bytes long; at most %d are possible", size, MaxCommandBytes)
	}
	size = 0
	for _, key := range slices.Sorted(maps.Keys(g.Env)) {
		if key == "" || strings.ContainsAny(key, "=\x00") || strings.IndexByte(g.Env[key], 0) >= 0 {
			return Invalid(
				field+".env", "%q is not a name of an environment variable, or its value holds a zero byte", key,
			)
		}
		if strings.HasPrefix(key, "PLIMSOLL_") {
			return Invalid(field+".env."+key, "names that start with PLIMSOLL_ are set by the agent; choose another")
		}
		size += len(key) + len(g.Env[key]) + 2
	}
	if size > MaxEnvBytes {
		return Invalid(field+".env", "is %d bytes long; at most %d are possible", size, MaxEnvBytes)
	}
	return nil
}
