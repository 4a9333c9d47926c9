"""The help of a party's commands has a policy's fields in the groups that the policy has them in."""

from dataclasses import fields

import pytest

from repshare.cli.groups import COMMON, LAYOUTS
from repshare.config import Policy, PrivacyOptions, RepresentationOptions, SharingOptions, SpaceOptions, TrainingOptions

TITLES = {
    "space": SpaceOptions,
    "what is shared": SharingOptions,
    "representations": RepresentationOptions,
    "privacy": PrivacyOptions,
}


def test_a_policy_is_its_groups_and_no_more():
    groups = (TrainingOptions, SharingOptions, PrivacyOptions, RepresentationOptions, SpaceOptions)
    assert [each.name for each in fields(Policy)] == [each.name for group in groups for each in fields(group)]


@pytest.mark.parametrize("command", ["join", "peer"])
def test_a_policys_options_stand_under_the_titles_of_their_groups(command):
    of_policy = {each.name for each in fields(Policy)}
    assert not of_policy & {word.replace("-", "_") for word in LAYOUTS[command][COMMON].split()}
    for title, group in TITLES.items():
        listed = {word.replace("-", "_") for word in LAYOUTS[command][title].split()} & of_policy
        assert listed
        assert listed <= {each.name for each in fields(group)}
