package plimsoll

import (
	"slices"
	"strconv"
	"strings"
)

// EventSubject is the kind of object that an event is about.
type EventSubject uint8

// The subjects.
const (
	SubjectNone EventSubject = iota
	SubjectJob
	SubjectTask
	SubjectNode
	SubjectQueue
	SubjectUser
	SubjectGroup

	numEventSubjects
)

var eventSubjectNames = [numEventSubjects]string{"", "job", "task", "node", "queue", "user", "group"}

// Known reports whether this version has the subject.
func (s EventSubject) Known() bool { return s < numEventSubjects }

// String returns the subject's name, such as "task"; empty for SubjectNone.
func (s EventSubject) String() string { return wordOf(eventSubjectNames[:], s) }

// ParseEventSubject reads a subject's name; ok is false for another text.
func ParseEventSubject(s string) (subject EventSubject, ok bool) {
	i := slices.Index(eventSubjectNames[:], s)
	return EventSubject(max(i, 0)), i >= 0
}

// Subject returns the kind of the object that the event is about. An event of a job that names one
// of its tasks is about the task.
func (e *Event) Subject() EventSubject {
	switch {
	case e.Type == EventRequest || e.Type == EventApp && e.Reference != "":
		return SubjectTask
	case e.Type == EventApp:
		return SubjectJob
	case e.Type == EventNode:
		return SubjectNode
	case e.Type == EventQueue:
		return SubjectQueue
	case e.Type == EventUserGroup && (e.Detail == UserLimit || e.Detail == UserResource):
		return SubjectUser
	case e.Type == EventUserGroup:
		return SubjectGroup
	}
	return SubjectNone
}

// eventText has the sentences for a detail, one for each way of changing. OBJECT, REFERENCE,
// RESOURCES and TASK stand for values of the event. TASK is the reference of an event of a job, and
// the object of a request. The event's message follows behind a colon.
//
// With no, the message is a switch such as "ready: false (no heartbeat)": set is the sentence if it
// is true, no if it is false, and only the reason follows.
type eventText struct{ set, add, remove, no string }

// eventTexts has a text for each detail of the design and of this package.
var eventTexts = map[ChangeDetail]eventText{
	DetailNone: {
		set: "OBJECT changed", add: "OBJECT was added", remove: "OBJECT was removed",
	},

	RequestCancel:  {remove: "TASK is not wanted any more, and was not started"},
	RequestAlloc:   {add: "TASK got a place"},
	RequestTimeout: {remove: "TASK found no place in time"},

	AppAlloc:      {add: "TASK got a node", remove: "TASK gave its node back"},
	AppRequest:    {add: "TASK waits for a node", remove: "TASK has ended for good"},
	AppReject:     {set: "OBJECT was refused", remove: "OBJECT was refused"},
	AppNew:        {set: "OBJECT was submitted"},
	AppAccepted:   {set: "OBJECT has all its tasks, which wait for nodes"},
	AppStarting:   {set: "OBJECT has a node for its first task"},
	AppRunning:    {set: "OBJECT runs"},
	AppCompleting: {set: "OBJECT ends: all its tasks have succeeded"},
	AppCompleted:  {set: "OBJECT completed"},
	AppFailing:    {set: "OBJECT is failing"},
	AppFailed:     {set: "OBJECT failed"},
	AppResuming:   {set: "OBJECT gave its nodes back and starts again"},
	AppExpired:    {set: "OBJECT leaves the active store"},

	NodeDecomission: {remove: "OBJECT was removed; it had RESOURCES"},
	NodeReady:       {set: "OBJECT is ready", no: "OBJECT is not ready"},
	NodeSchedulable: {set: "OBJECT takes new tasks", no: "OBJECT takes no new tasks"},
	NodeAlloc: {
		add: "OBJECT got task REFERENCE, which takes RESOURCES", remove: "OBJECT has task REFERENCE no longer",
	},
	NodeCapacity: {set: "OBJECT has a new capacity: RESOURCES"},
	NodeOccupied: {set: "others use RESOURCES of OBJECT"},
	NodeReservation: {
		add: "OBJECT is reserved for REFERENCE", remove: "OBJECT is reserved for REFERENCE no longer",
	},
	NodeQOSDetail: {set: "OBJECT has news of its QoS agent"},

	QueueConfigured: {
		set: "OBJECT drains: it is no longer in the queue file", no: "OBJECT is in the queue file again",
	},
	QueueDynamic:    {add: "OBJECT was made for a job"},
	QueueType:       {set: "OBJECT changed its type"},
	QueueMax:        {set: "OBJECT has a new maximum: RESOURCES"},
	QueueGuaranteed: {set: "OBJECT has a new guarantee: RESOURCES"},
	QueueApp:        {add: "OBJECT got job REFERENCE", remove: "OBJECT has job REFERENCE no longer: it has ended"},
	QueueAlloc:      {add: "OBJECT uses RESOURCES more", remove: "OBJECT uses RESOURCES less"},
	QueuePreemption: {set: "tasks of OBJECT lost their nodes to bring it within its maximum"},

	AllocCancel:      {remove: "TASK ended an attempt"},
	AllocPreempt:     {remove: "TASK lost its node to a more important task"},
	AllocTimeout:     {remove: "TASK was stopped after its longest run"},
	AllocReplaced:    {remove: "TASK was replaced"},
	AllocNodeRemoved: {remove: "TASK was lost with its node"},
	AllocQOSDetail:   {set: "TASK was acted on by the QoS agent of its node"},

	UserLimit: {
		set:    "OBJECT has a new limit of resources (RESOURCES)",
		remove: "OBJECT has its limit in REFERENCE no longer",
	},
	GroupLimit: {
		set:    "OBJECT has a new limit of resources (RESOURCES)",
		remove: "OBJECT has its limit in REFERENCE no longer",
	},
	GroupLink: {
		add:    "the limits of OBJECT hold for job REFERENCE",
		remove: "the limits of OBJECT hold for job REFERENCE no longer",
	},
	UserResource: {
		add: "OBJECT uses RESOURCES more in REFERENCE", remove: "OBJECT uses RESOURCES less in REFERENCE",
	},
	GroupResource: {
		add: "OBJECT uses RESOURCES more in REFERENCE", remove: "OBJECT uses RESOURCES less in REFERENCE",
	},
}

// Sentence tells the event in plain words, such as "task a.map.1 got a node".
func (e *Event) Sentence() string {
	text, message := e.text()
	task := e.Reference
	if e.Type == EventRequest {
		task = e.Object
	}
	object := e.Object
	if name := e.objectKind(); name != "" {
		object = name + " " + object
	}
	text = strings.NewReplacer(
		"OBJECT", object, "REFERENCE", e.Reference, "RESOURCES", e.amounts(), "TASK", "task "+task,
	).Replace(text)
	if e.Head != nil && e.Head.Owner != "" {
		text += " by " + e.Head.Owner
	}
	if message != "" {
		text += ": " + message
	}
	return text
}

// queuesRefusedText is the beginning of the message of an event QUEUE_CONFIG of the root that tells
// of a configuration that was refused.
const queuesRefusedText = "refused: "

// QueuesRefusedText returns the message of the event that tells why a configuration of the queues
// was refused.
func QueuesRefusedText(why string) string { return queuesRefusedText + why }

// QueuesRefused returns why a configuration of the queues was refused, if the event tells that.
func (e *Event) QueuesRefused() (why string, refused bool) {
	if e.Type != EventQueue || e.Detail != QueueConfigured {
		return "", false
	}
	return strings.CutPrefix(e.Message, queuesRefusedText)
}

// text returns the text of the event from the table, and the part of its message that follows.
func (e *Event) text() (text, message string) {
	if why, refused := e.QueuesRefused(); refused {
		return "a configuration of the queues was refused", why
	}
	texts, known := eventTexts[e.Detail]
	message = e.Message
	if texts.no != "" {
		usable, why := readSwitch(message)
		if !usable {
			return texts.no, why
		}
		return texts.set, why
	}
	switch e.Change {
	case ChangeSet:
		text = texts.set
	case ChangeAdd:
		text = texts.add
	case ChangeRemove:
		text = texts.remove
	}
	if !known || text == "" {
		text = "OBJECT: " + e.Change.String() + " " + e.Detail.String()
	}
	return text, message
}

// readSwitch reads a message such as "ready: false (no heartbeat)".
func readSwitch(message string) (on bool, why string) {
	_, value, found := strings.Cut(message, ": ")
	word, why, _ := strings.Cut(value, " ")
	if !found || word != "true" && word != "false" {
		return true, message
	}
	return word == "true", strings.TrimSuffix(strings.TrimPrefix(why, "("), ")")
}

// objectKind returns the word for the kind of Event.Object. That may differ from the subject: the
// object of an event of a job is the job, also if the event is about a task.
func (e *Event) objectKind() string {
	if e.Type == EventApp {
		return SubjectJob.String()
	}
	return e.Subject().String()
}

// amounts returns the resources of the event in words.
func (e *Event) amounts() string {
	if len(e.Resources) == 0 {
		return "none"
	}
	return e.Resources.String()
}

// The parts of the message of an event that sets a limit of a user or group.
const (
	limitQueueText = "queue: "
	limitJobsText  = ", max jobs: "
)

// LimitText returns the message of an event that sets a limit for a user or group at a queue, such
// as "queue: root.a, max jobs: 3". It names the queue, because an event of the change SET has no
// reference. maxJobs is 0 without a limit of jobs.
func LimitText(queue string, maxJobs int32) string {
	if maxJobs == 0 {
		return limitQueueText + queue
	}
	return limitQueueText + queue + limitJobsText + strconv.Itoa(int(maxJobs))
}

// Limit returns the queue of an event that sets or removes a limit of a user or group. maxJobs is
// the limit of jobs that it sets; 0: none. The queue is empty for another event.
func (e *Event) Limit() (queue string, maxJobs int32) {
	if e.Type != EventUserGroup || e.Detail != UserLimit && e.Detail != GroupLimit {
		return "", 0
	}
	if e.Change != ChangeSet {
		return e.Reference, 0
	}
	text, found := strings.CutPrefix(e.Message, limitQueueText)
	if !found {
		return "", 0
	}
	queue, jobs, _ := strings.Cut(text, limitJobsText)
	n, _ := strconv.ParseInt(jobs, 10, 32) // 0 without one
	return queue, int32(n)
}
