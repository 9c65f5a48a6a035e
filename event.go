package plimsoll

import (
	"maps"
	"slices"
)

// EventType is the kind of object that an event is about (event design, "Event types").
type EventType uint8

// The event types.
const (
	EventUnknown EventType = iota
	EventRequest
	EventApp
	EventNode
	EventQueue
	EventUserGroup // a user or a group of users for whom limits hold; YuniKorn's, not the design's

	numEventTypes
)

// NumEventTypes is one more than the highest event type, for tables.
const NumEventTypes = int(numEventTypes)

var eventTypeNames = [numEventTypes]string{"UNKNOWN", "REQUEST", "APP", "NODE", "QUEUE", "USERGROUP"}

// Known reports whether this version has the type.
func (t EventType) Known() bool { return t < numEventTypes }

// String returns the design's word, such as "APP".
func (t EventType) String() string { return wordOf(eventTypeNames[:], t) }

// ChangeType is the way in which the object changed (event design, "Change types").
type ChangeType uint8

// The change types.
const (
	ChangeNone ChangeType = iota
	ChangeSet
	ChangeAdd
	ChangeRemove

	numChangeTypes
)

var changeTypeNames = [numChangeTypes]string{"NONE", "SET", "ADD", "REMOVE"}

// Known reports whether this version has the type.
func (t ChangeType) Known() bool { return t < numChangeTypes }

// String returns the design's word, such as "ADD".
func (t ChangeType) String() string { return wordOf(changeTypeNames[:], t) }

// ChangeDetail is the precise change (event design, "Change details"). The numbers are the
// design's.
type ChangeDetail uint16

// The change details.
const (
	DetailNone ChangeDetail = 0

	RequestCancel  ChangeDetail = 100
	RequestAlloc   ChangeDetail = 101
	RequestTimeout ChangeDetail = 102

	AppAlloc      ChangeDetail = 200
	AppRequest    ChangeDetail = 201
	AppReject     ChangeDetail = 202
	AppNew        ChangeDetail = 203
	AppAccepted   ChangeDetail = 204
	AppStarting   ChangeDetail = 205
	AppRunning    ChangeDetail = 206
	AppCompleting ChangeDetail = 207
	AppCompleted  ChangeDetail = 208
	AppFailing    ChangeDetail = 209
	AppFailed     ChangeDetail = 210
	AppResuming   ChangeDetail = 211
	AppExpired    ChangeDetail = 212

	NodeDecomission ChangeDetail = 300
	NodeReady       ChangeDetail = 301
	NodeSchedulable ChangeDetail = 302
	NodeAlloc       ChangeDetail = 303
	NodeCapacity    ChangeDetail = 304
	NodeOccupied    ChangeDetail = 305
	NodeReservation ChangeDetail = 306
	NodeQOSDetail   ChangeDetail = 390 // not in the design: an action or observation of a node's QoS agent

	QueueConfigured ChangeDetail = 400
	QueueDynamic    ChangeDetail = 401
	QueueType       ChangeDetail = 402
	QueueMax        ChangeDetail = 403
	QueueGuaranteed ChangeDetail = 404
	QueueApp        ChangeDetail = 405
	QueueAlloc      ChangeDetail = 406
	QueuePreemption ChangeDetail = 407 // YuniKorn's, not the design's

	AllocCancel      ChangeDetail = 500
	AllocPreempt     ChangeDetail = 501
	AllocTimeout     ChangeDetail = 502
	AllocReplaced    ChangeDetail = 503
	AllocNodeRemoved ChangeDetail = 504
	AllocQOSDetail   ChangeDetail = 590 // not in the design: an action of the node's QoS agent on a task

	// The details of EventUserGroup are YuniKorn's. The design has none.

	UserLimit     ChangeDetail = 600 // the object is a user; "*" stands for all whom no other limit names
	GroupLimit    ChangeDetail = 601 // the object is a group of users
	GroupLink     ChangeDetail = 602 // the reference is a job to which the limits of the group apply
	UserResource  ChangeDetail = 603 // the reference is the leaf queue in which the use changed
	GroupResource ChangeDetail = 604
)

// Known reports whether the design or this package defines the detail.
func (d ChangeDetail) Known() bool { return d.word() != "" }

// String returns the design's word, such as "APP_ALLOC".
func (d ChangeDetail) String() string {
	if word := d.word(); word != "" {
		return word
	}
	return unknown(d)
}

// word returns an empty string for a number that neither the design nor this package defines.
func (d ChangeDetail) word() string {
	switch d {
	case NodeQOSDetail:
		return "NODE_QOS"
	case AllocQOSDetail:
		return "ALLOC_QOS"
	}
	group, n := int(d)/100, int(d)%100
	names := [...][]string{
		{"DETAILS_NONE"},
		{"REQUEST_CANCEL", "REQUEST_ALLOC", "REQUEST_TIMEOUT"},
		{
			"APP_ALLOC", "APP_REQUEST", "APP_REJECT", "APP_NEW", "APP_ACCEPTED", "APP_STARTING", "APP_RUNNING",
			"APP_COMPLETING",
			"APP_COMPLETED", "APP_FAILING", "APP_FAILED", "APP_RESUMING", "APP_EXPIRED",
		},
		{
			"NODE_DECOMISSION", "NODE_READY", "NODE_SCHEDULABLE", "NODE_ALLOC", "NODE_CAPACITY", "NODE_OCCUPIED",
			"NODE_RESERVATION",
		},
		{
			"QUEUE_CONFIG", "QUEUE_DYNAMIC", "QUEUE_TYPE", "QUEUE_MAX", "QUEUE_GUARANTEED", "QUEUE_APP", "QUEUE_ALLOC",
			"QUEUE_PREEMPTION",
		},
		{"ALLOC_CANCEL", "ALLOC_PREEMPT", "ALLOC_TIMEOUT", "ALLOC_REPLACED", "ALLOC_NODEREMOVED"},
		{"UG_USER_LIMIT", "UG_GROUP_LIMIT", "UG_APP_LINK", "UG_USER_RESOURCE", "UG_GROUP_RESOURCE"},
	}
	if group >= len(names) || n >= len(names[group]) {
		return ""
	}
	return names[group][n]
}

// MaxEventMessage is the longest message of an event in bytes. A longer one is cut.
const MaxEventMessage = 1024

// Event is one record of a change (event design, "Event description"). It holds no id: the id
// follows from the event's position in the log.
type Event struct {
	Type      EventType
	Change    ChangeType
	Detail    ChangeDetail
	Time      int64  // Unix nanoseconds: the time of the batch
	Object    string // id of the object
	Reference string // id of the second object; empty for NONE and SET
	Resources Resources
	Message   string
	Head      *JobHead // of the event that takes a job in; must not be changed
}

// JobHead has the facts of a job that stay the same for as long as it lives. The event design has
// no place for them. Without them the events would not tell who has used what.
type JobHead struct {
	UID    UID
	Owner  string
	Labels map[string]string
}

// String returns the facts in one line; nil is empty.
func (h *JobHead) String() string {
	if h == nil {
		return ""
	}
	text := "owner " + h.Owner + ", uid " + h.UID.String()
	for _, key := range slices.Sorted(maps.Keys(h.Labels)) {
		text += ", " + key + "=" + h.Labels[key]
	}
	return text
}

// Size bounds the bytes of the head in its packed form: the numbers of the uid, and each text with
// its length.
func (h *JobHead) Size() int {
	const uid, perText = 22, 5
	if h == nil {
		return 0
	}
	n := uid + perText + len(h.Owner)
	for _, key := range slices.Sorted(maps.Keys(h.Labels)) {
		n += 2*perText + len(key) + len(h.Labels[key])
	}
	return n
}
