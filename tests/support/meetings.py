"""Meetings for secure sums without a relay."""


class LocalMeeting:
    """Meetings in the same process."""

    def __init__(self, meetings, members, name, patience):
        self.meetings, self.members, self.name, self.patience = meetings, members, name, patience

    def number(self):
        """Of the meeting that one can still come to."""
        return self.meetings.number(self.members)

    def put(self, number, step, body):
        """Say something in a step."""
        self.meetings.put(self.members, number, step, self.name, body, self.patience)

    def get(self, number, step):
        """What everyone said in a step."""
        return self.meetings.get(self.members, number, step)
