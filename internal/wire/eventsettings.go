package wire

import (
	"time"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
)

// EventSettingsToProto converts the settings of the events.
func EventSettingsToProto(s *plimsoll.EventSettings) *pb.EventSettings {
	return &pb.EventSettings{
		TrackingEventsEnabled: s.TrackingEventsEnabled, RingBufferCapacity: s.RingBufferCapacity,
		RingBufferBytes: s.RingBufferBytes, RingBufferAgeNanos: int64(s.RingBufferAge),
		RingBufferHeldBytes: s.RingBufferHeldBytes, RestResponseSize: s.RESTResponseSize,
		RequestEventsEnabled: s.RequestEventsEnabled,
		RequestStoreCapacity: s.RequestStoreCapacity, Given: textsToProto(s.Given),
	}
}

// EventSettingsFromProto converts the settings of the events.
func EventSettingsFromProto(m *pb.EventSettings) plimsoll.EventSettings {
	return plimsoll.EventSettings{
		TrackingEventsEnabled: m.GetTrackingEventsEnabled(), RingBufferCapacity: m.GetRingBufferCapacity(),
		RingBufferBytes: m.GetRingBufferBytes(), RingBufferAge: time.Duration(m.GetRingBufferAgeNanos()),
		RingBufferHeldBytes: m.GetRingBufferHeldBytes(), RESTResponseSize: m.GetRestResponseSize(),
		RequestEventsEnabled: m.GetRequestEventsEnabled(),
		RequestStoreCapacity: m.GetRequestStoreCapacity(), Given: textsFromProto(m.GetGiven()),
	}
}

// AppendEventSettings encodes the settings of the events.
func AppendEventSettings(dst []byte, s *plimsoll.EventSettings) []byte {
	return appendMessage(dst, EventSettingsToProto(s))
}

// DecodeEventSettings decodes the settings of the events.
func DecodeEventSettings(data []byte) (plimsoll.EventSettings, error) {
	var m pb.EventSettings
	if err := decodeMessage("event settings", data, &m); err != nil {
		return plimsoll.EventSettings{}, err
	}
	return EventSettingsFromProto(&m), nil
}
