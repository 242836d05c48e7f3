import pytest

from traceread.config import Config, find_config, load_config
from traceread.errors import ConfigError


def written(tmp_path, text):
    path = tmp_path / "traceread.toml"
    path.write_text(text)
    return path


def test_everything_it_can_say(tmp_path):
    path = written(
        tmp_path,
        """
        [[kernels]]
        pattern = "^my_allreduce"
        category = "communication"
        [ranges]
        my_fetch = "data_wait"
        [steps]
        pattern = "batch"
        micro_steps = 4
        [model]
        parameters = 6.74e9
        """,
    )
    config = load_config(path)
    assert config.kernels[0]["category"] == "communication"
    assert (config.step_pattern, config.micro_steps, config.ranges) == ("batch", 4, {"my_fetch": "data_wait"})
    assert config.model == {"parameters": 6.74e9}
    assert find_config([tmp_path]) == config
    assert find_config([tmp_path / "rank0.json"]) == config


def test_none_is_the_defaults(tmp_path):
    assert find_config([tmp_path]) == Config()


@pytest.mark.parametrize(
    "text",
    [
        "[nonsense]\nx = 1",
        "not toml",
        "[steps]\nmicro_steps = 0",
        "[steps]\npattern = 3",
        "kernels = 3",
        "[ranges]\nx = 3",
        "[ranges]\nx = 'slow'",
        "steps = 3",
    ],
)
def test_errors_name_the_file_or_the_entry_and_say_what_to_write(tmp_path, text):
    with pytest.raises(ConfigError) as error:
        load_config(written(tmp_path, text))
    assert error.value.hint


def test_a_missing_file(tmp_path):
    with pytest.raises(ConfigError, match=r"none\.toml"):
        load_config(tmp_path / "none.toml")
